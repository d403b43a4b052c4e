SELECT {now}, (SELECT min(plan_at) FROM {schedules} WHERE plan_at > {now})
