"""Cost of xsem beside the driver and cuda-python: ``python benchmarks/run.py --device cuda:0 --exporter vulkan``."""

# `rig` opens the measured device and its exporter. `timing` interleaves repetitions and takes medians. `ways` has the
# five ways to signal and wait, and `c_loop` compiles and loads the loop in C. `signals`, `frames`, `imports`, `trips`,
# `copies`, `images`, `objects` and `waits` measure. `aims` compares the results with the aims, and `plot` draws them.
