-- Leaves: burns the epoch, empties the hand in steps, then frees the seat. Call it until it returns 0.
-- ARGV     now_ms, sysid, epoch, limit, bytes_max
-- Returns  number of jobs that left the hand; 0 when none was left and the seat is free
-- Errors   JQD_STALE_OWNER when a newer epoch has the seat, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(limit · log waiting), and the bytes
register('release_sysid', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
  local limit, bytes_max = number(ARGV[4], 'limit'), number(ARGV[5], 'bytes_max')

  local counter, present = Members.member(sysid)
  if not counter then
    return 0
  elseif present ~= epoch and present ~= 0 then
    fail('JQD_STALE_OWNER', digits(present))
  end
  return Giveback.leave(sysid, counter, limit, bytes_max, now_ms, 0)
end)
