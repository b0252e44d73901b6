-- Daemons and what they hold. Needs keys, fail, now.
-- Gives member(sysid) → counter, epoch or nil; own(sysid, epoch): JQD_STALE_OWNER unless that epoch is the present one;
-- set_member(sysid, counter, epoch); next_fence(now_us): grows with every call, even after the store was emptied.
local DIGITS_MAX = 16  -- microseconds since 1970 have sixteen until the year 2286, and stay exact

local function member(sysid)
  local row = redis.call('HGET', K.members, sysid)
  if not row then
    return nil
  end
  local counter, epoch = row:match('^(%d+):(%d+)$')
  if not counter or #counter > DIGITS_MAX or #epoch > DIGITS_MAX then
    fail('JQD_BAD_VALUE', 'members')
  end
  return tonumber(counter), tonumber(epoch)
end

local function own(sysid, epoch)
  local _, present = member(sysid)
  if not present or present == 0 or present ~= epoch then
    fail('JQD_STALE_OWNER', digits(present or 0))
  end
end

local function set_member(sysid, counter, epoch)
  redis.call('HSET', K.members, sysid, digits(counter) .. ':' .. digits(epoch))
end

local function next_fence(now_us)
  local fence = redis.call('GET', K.fence) or '0'
  if not fence:match('^%d+$') or #fence > DIGITS_MAX then
    fail('JQD_BAD_VALUE', 'fence')
  end
  fence = math.max(tonumber(fence) + 1, now_us)
  redis.call('SET', K.fence, digits(fence))
  return fence
end
