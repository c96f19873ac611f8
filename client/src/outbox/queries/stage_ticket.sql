-- A new ticket for the caller's open transaction or savepoint (design, section 3).
SELECT holdfast.stage_ticket()
