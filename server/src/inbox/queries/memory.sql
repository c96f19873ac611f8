-- What the inbox remembers of these messages, by the queues that have seen any of them.
SELECT consumer_queue, count(*) FILTER (WHERE processed_at IS NOT NULL) AS processed, count(*) AS seen
FROM holdfast.event_inbox WHERE envelope_id = ANY ($1::uuid[]) AND consumer_queue = ANY ($2::text[])
GROUP BY consumer_queue
