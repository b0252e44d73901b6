-- Who holds a job. Reads the names of all members: a few. What workers hold themselves lies in one hand more,
-- however many they are: `held:*` (shared/leases.lua).
-- Gives WORKERS, the name of that hand; expect_held_keys(), to be called before the first write and before the others; sysids,
-- with that name when workers hold any; holder(id) → sysid, fence or nil; holders(ids) → id → {sysid, fence} of those that are held; those
-- of them that are met twice, in `ids` or in hands.
Holder.WORKERS = '*'
starts.sysids = empty

function Holder.expect_held_keys()
  expect('members')
  call.sysids = redis.call('HKEYS', K.members)
  if redis.call('EXISTS', held_key(Holder.WORKERS)) == 1 then
    table.insert(call.sysids, Holder.WORKERS)
  end
  for _, sysid in ipairs(call.sysids) do
    expect_kind(held_key(sysid), 'held')
  end
end

-- One call per member, whatever the number of ids. Those of one claim share what is said of it.
function Holder.holders(ids)
  local found, twice = {}, {}
  for _, sysid in ipairs(#ids > 0 and call.sysids or {}) do
    local claims = {}
    for position, fence in ipairs(redis.call('ZMSCORE', held_key(sysid), unpack(ids))) do
      if fence then
        local id = ids[position]
        if found[id] then
          twice[id] = true
        end
        claims[fence] = claims[fence] or {sysid = sysid, fence = tonumber(fence)}
        found[id] = claims[fence]
      end
    end
  end
  return found, twice
end

function Holder.holder(id)
  local found = Holder.holders({id})[id]
  if found then
    return found.sysid, found.fence
  end
  return nil
end
