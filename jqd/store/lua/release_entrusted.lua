-- Workers give jobs back untried: ready again, or cancelled if that was asked for (unget; unsent: no worker began them).
-- ARGV     now_ms, identity of the store as the caller knows it, how, then per claim: id, fence
-- Returns  ids that were given back; those not held by a worker under that fence are left alone
-- Errors   JQD_STORE_CHANGED, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(claims · log waiting), and the bytes
register('release_entrusted', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local how = ARGV[3]
  local FIRST, FIELDS = 4, 2

  Life.expect_life(ARGV[2])
  if how ~= 'unget' and how ~= 'unsent' then
    fail('JQD_ARGUMENT', 'how')
  end
  local given, touched = {}, {}
  for _, one in ipairs(About.held_so(About.WORKERS, FIRST, FIELDS)) do
    Back.give_back(one.id, one.hold, redis.call('HGET', K.jobs, one.id), now_ms, how == 'unsent')
    touched[one.hold.fence] = true
    table.insert(given, one.id)
  end
  Back.finish(given, now_ms, now_us)
  for fence in pairs(touched) do
    Leases.tidy_lease(fence, now_us)
  end
  return given
end)
