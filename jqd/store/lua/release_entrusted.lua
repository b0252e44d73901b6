-- Workers give jobs back untried: ready again, or cancelled if that was asked for (unget; unsent: no worker began them).
-- ARGV     now_ms, identity of the store as the caller knows it, how, then per claim: id, fence
-- Returns  ids that were given back; those not held by a worker under that fence are left alone
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(claims · log waiting), and the bytes
register('release_entrusted', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local how = ARGV[3]
  local FIRST, FIELDS = 4, 2

  expect('jobs', 'types', 'heads', 'later', 'tries', 'ended', 'dead', 'outcome', 'tomb', 'early', 'life', 'generation')
  Leases.expect_leases()
  Holder.expect_held_keys()
  Life.expect_life(ARGV[2])
  if how ~= 'unget' and how ~= 'unsent' then
    fail('JQD_ARGUMENT', 'how')
  end
  if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
    fail('JQD_ARGUMENT', 'claims')
  end
  local claims = {}
  for at = FIRST, #ARGV, FIELDS do
    table.insert(claims, {ARGV[at], number(ARGV[at + 1], 'fence')})
    Leases.expect_lease(claims[#claims][2])
  end
  local given, gone, touched = {}, {}, {}
  for _, claim in ipairs(claims) do
    local id, fence = unpack(claim)
    if tonumber(redis.call('ZSCORE', held_key(Holder.WORKERS), id) or nil) == fence then
      local row = redis.call('HGET', K.jobs, id)
      if how ~= 'unsent' then
        Back.note_begun(id, row, fence)
      end
      Back.return_job(id, row, now_ms, 'running', fence)
      redis.call('ZREM', held_key(Holder.WORKERS), id)
      Early.drop_early(id)
      touched[fence] = true
      table.insert(given, id)
      table.insert(gone, id)
    end
  end
  for fence in pairs(touched) do
    Leases.tidy_lease(fence, now_us)
  end
  Leases.forget_lent(gone)
  Parked.left(gone, now_us)
  Counts.write_counts(now_ms)
  return given
end)
