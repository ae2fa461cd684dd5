"""Cost of xsem beside the driver and cuda-python: ``python benchmarks/run.py --device cuda:0 --exporter vulkan``.

- ``timing`` interleaves repetitions and takes medians.
- ``ways`` has the five ways to signal and wait; ``c_loop`` compiles and loads the one in C.
- ``signals``, ``imports``, ``trips``, ``copies`` and ``objects`` measure.
- ``aims`` compares the results with the aims; ``plot`` draws.
"""
