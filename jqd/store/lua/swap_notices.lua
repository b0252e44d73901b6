-- Exchanges the state of what is told the administrator for a later one, unless somebody else did before. Its size is
-- bounded, and a full server is worth a notice.
-- ARGV     now_ms, identity of the store as the caller knows it, version that the caller has, later state, or nothing
--          to look only
-- Returns  now_ms, version, state; nil where that is the caller's
-- Errors   JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the write
-- Cost     O(bytes)
register('swap_notices', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local known, later = ARGV[3], ARGV[4]

  Life.expect_life(ARGV[2])
  local version, state = (redis.call('GET', K.notices) or '0:'):match('^(%d+):(.*)$')
  if not version then
    fail('JQD_BAD_VALUE', 'notices')
  elseif version ~= known then
    return {digits(now_ms), version, state}
  elseif later ~= '' then
    version = digits(math.max(tonumber(version) + 1, now_us))  -- in an emptied store it is none that was
    redis.call('SET', K.notices, version .. ':' .. later)
  end
  return {digits(now_ms), version, false}
end)
