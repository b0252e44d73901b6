-- Who holds a job. Needs keys. Reads the names of all members: a few.
-- Gives expect_held_keys(), to be called before the first write and before holder; sysids; holder(id) → sysid, fence or
-- nil. Cost: O(members) a job, one look when it is the same daemon as last time.
local sysids, likely = {}, 1

local function expect_held_keys()
  expect('members')
  sysids = redis.call('HKEYS', K.members)
  for _, sysid in ipairs(sysids) do
    expect_kind(held_key(sysid), 'held')
  end
end

local function holder(id)
  for step = 0, #sysids - 1 do
    local position = (likely - 1 + step) % #sysids + 1
    local fence = redis.call('ZSCORE', held_key(sysids[position]), id)
    if fence then
      likely = position
      return sysids[position], tonumber(fence)
    end
  end
  return nil
end
