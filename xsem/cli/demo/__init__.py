"""``xsem demo``: a renderer and a compute process share an image and semaphores; every pixel is checked."""
