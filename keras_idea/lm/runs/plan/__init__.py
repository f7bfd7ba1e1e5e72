"""A run planned: what it will do, and what it takes of which device."""

from keras_idea.lm.runs.plan.planning import RunPlan, StagePlan, plan

__all__ = ["RunPlan", "StagePlan", "plan"]
