"""Language models on question-answer rows (TOFU and files of its shape); needs the extra ``llm``."""
