-- Returns up to where the lanes of a journal were applied. With a last field it makes the journal known: from now on
-- its ids may be on their way, and other journals keep ends of its jobs until it reports since when it keeps them
-- (save_kept).
-- ARGV     now_ms, identity of the store, last field or nothing, then position fields
-- Returns  one position per position field, nil for a lane never applied
-- Errors   JQD_STORE_CHANGED
-- Cost     O(fields)
register('applied', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local last_field = ARGV[3]
  local FIRST = 4

  local fields = {unpack(ARGV, FIRST)}
  if last_field ~= '' then
    Life.expect_life(ARGV[2])
    redis.call('HSETNX', K.applied, last_field, '')
    local journal = fields[1]:match('^[^:]*')
    local since, told_at = Kept.kept_since(journal)
    if told_at < now_us - Kept.SILENT_US then
      Kept.save_kept(journal, since, now_us)
    end
  end
  return redis.call('HMGET', K.applied, unpack(fields))
end)
