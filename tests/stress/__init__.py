"""Stress: many threads, many imports, killed peers, senseless descriptors; nothing may leak, hang or crash.

    python tests/stress/run.py --device cuda:0 --exporter vulkan --json out.json
    tests/drivers/run cuda -- python tests/stress/run.py --scale short

A command of its own and no pytest file, because a part's answer is what its whole process looks like after minutes of
work: pytest's own threads, open files and kept tracebacks would be in that. Each part runs in a fresh process under a
deadline, so a hang or a crash costs that part alone and says where. ``test_stress.py`` runs the short
form.
"""
