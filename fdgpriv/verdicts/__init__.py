"""From score tables to verdicts: tests of leads over controls, questions with their answers, findings. Numbers only."""
