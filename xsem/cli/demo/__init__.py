"""``xsem demo``: a renderer and a compute process share an image and semaphores; every pixel is checked.

- ``plan``: the options of the run and the notes between the two processes.
- ``picture``: the frames, the filter and the contact sheet.
- ``renderer``: the first process, which exports, draws, signals and checks.
- ``compute``: the second process, which imports, waits, filters and signals.
- ``arrays``: the choice of the array library that filters on a device.
- ``show``: starts both processes and reports the result.
"""
