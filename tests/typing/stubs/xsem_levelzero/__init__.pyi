# Until xsem has this backend: what the application says to adopt its own objects.

class Native:
    def __init__(self, driver: int, context: int, device: int) -> None: ...
