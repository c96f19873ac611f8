-- Which of these tickets does an undecided row still name?
SELECT asked.ticket FROM unnest($1::bigint[]) AS asked (ticket)
WHERE EXISTS (SELECT 1 FROM holdfast.event_inbox AS i WHERE i.ticket = asked.ticket)
