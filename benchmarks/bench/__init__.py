"""What xsem costs, beside the driver and cuda-python: ``python benchmarks/run.py --device cuda:0 --exporter vulkan``.

``timing`` interleaves repetitions and takes medians, ``ways`` are the four ways to signal and wait, ``c_loop`` compiles
and loads the one in C, ``signals``, ``imports``, ``trips``, ``copies`` and ``objects`` measure, ``aims`` compares with
what is aimed at, ``plot`` draws.
"""
