#!lua flags=allow-oom
-- Makes jobs ready whose date has come, the longest due first.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, limit, bytes_max
-- Returns  number moved, ms until the next is due (0: more are due now) or nil when none has a date
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(limit · log waiting), and the bytes
--@include fail keys now counts order heads move back
local now_ms = clock(ARGV[1])
local limit, bytes_max = number(ARGV[2], 'limit'), number(ARGV[3], 'bytes_max')

expect('jobs', 'types', 'heads', 'later', 'tries', 'ended', 'dead', 'outcome', 'tomb')
local ids = redis.call('ZRANGE', K.later, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)
local rows = rows_within(ids, bytes_max)
local tries = #ids > 0 and redis.call('HMGET', K.tries, unpack(ids)) or {}
for position, row in ipairs(rows) do
  -- A retry may be due before the date of a content that came while the job ran.
  if not return_job(ids[position], row, now_ms, have_failed(tries[position]) and 'retrying' or 'scheduled') then
    redis.call('ZREM', K.later, ids[position])
  end
end
write_counts(now_ms)
local next_due = redis.call('ZRANGE', K.later, 0, 0, 'WITHSCORES')[2]
return {#rows, next_due and math.max(0, math.ceil(tonumber(next_due) - now_ms))}
