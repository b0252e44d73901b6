-- Replaces the state of the administrator's notices, unless somebody else did before. It is small, so this runs on a
-- full server, which is worth a notice.
-- ARGV     now_ms, identity of the store, version that the caller has, later state, or nothing to read only
-- Returns  now_ms, version, state; nil if the caller has it
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
    version = digits(math.max(tonumber(version) + 1, now_us))  -- never used before, even in an emptied store
    redis.call('SET', K.notices, version .. ':' .. later)
  end
  return {digits(now_ms), version, false}
end)
