-- Forgets up to where the lanes of a journal were applied, as of one that will apply nothing more.
-- ARGV     now_ms, last field, then position fields
-- Returns  number of fields that were there
-- Errors   none
-- Cost     O(fields)
register('forget_journal', {'allow-oom'}, function()
  return redis.call('HDEL', K.applied, unpack(ARGV, 2))
end)
