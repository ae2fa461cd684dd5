"""Stress: many threads, many imports, killed peers, random descriptors. Nothing may leak, hang or crash.

    python tests/stress/run.py --device cuda:0 --exporter vulkan --json out.json
    tests/drivers/run cuda -- python tests/stress/run.py --scale short

This is a separate command, because the result of a part is the state of its whole process after minutes of work.
Under pytest this state would include pytest's threads, open files and tracebacks. Each part runs in a fresh process
under a deadline, so a hang or a crash fails only that part and shows its place. ``test_stress.py`` runs the short form.
"""
