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
    local id, fence = one.id, one.hold.fence
    local row = redis.call('HGET', K.jobs, id)
    if how ~= 'unsent' then
      Back.note_begun(id, row, fence)
    end
    Back.return_job(id, row, now_ms, 'running', fence)
    About.leave(id, one.hold)
    touched[fence] = true
    table.insert(given, id)
  end
  About.write()
  for fence in pairs(touched) do
    Leases.tidy_lease(fence, now_us)
  end
  Move.forget_progress(given)
  Parked.left(now_us)
  Counts.write_counts(now_ms)
  return given
end)
