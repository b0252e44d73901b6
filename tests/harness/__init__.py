"""What several suites stand on: fakes, planted mistakes, a scripted worker."""
