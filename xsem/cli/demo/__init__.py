"""``xsem demo``: a renderer and a compute process share an image and semaphores; every pixel is checked.

``plan`` is what was asked for, as both processes know it; ``picture`` has the frames, the filter and the contact sheet;
``renderer`` is this process, which exports, draws, signals and checks; ``compute`` is the other one, which imports,
waits, filters and signals; ``arrays`` says which array library filters on which device; ``show`` runs both.
"""
