-- Daemons and what they hold.
-- A row is "counter:epoch:identity": the life of the store in which that daemon came through the barrier, or nothing.
local DIGITS_MAX = 16  -- microseconds since 1970 have sixteen until the year 2286, and stay exact

-- Counter, epoch and identity in a row.
function Members.member_of(row)
  local counter, epoch, identity = row:match('^(%d+):(%d+):(.*)$')
  if not counter or #counter > DIGITS_MAX or #epoch > DIGITS_MAX then
    fail('JQD_BAD_VALUE', 'members')
  end
  return tonumber(counter), tonumber(epoch), identity
end

-- The same of a daemon, or nil.
function Members.member(sysid)
  local row = redis.call('HGET', K.members, sysid)
  if not row then
    return nil
  end
  return Members.member_of(row)
end

-- Whether every unburnt member is through the barrier of that life.
function Members.all_through(identity)
  for _, row in ipairs(redis.call('HVALS', K.members)) do
    local _, epoch, through = Members.member_of(row)
    if epoch ~= 0 and through ~= identity then
      return false
    end
  end
  return true
end

-- JQD_STALE_OWNER unless that epoch is the present one.
function Members.own(sysid, epoch)
  local _, present = Members.member(sysid)
  if not present or present == 0 or present ~= epoch then
    fail('JQD_STALE_OWNER', digits(present or 0))
  end
end

-- Writes a member's row.
function Members.set_member(sysid, counter, epoch, identity)
  redis.call('HSET', K.members, sysid, digits(counter) .. ':' .. digits(epoch) .. ':' .. identity)
end

-- The first of so many new numbers (1). They grow with every call, even after the store was emptied.
function Members.next_fence(now_us, count)
  local fence = redis.call('GET', K.fence) or '0'
  if not fence:match('^%d+$') or #fence > DIGITS_MAX then
    fail('JQD_BAD_VALUE', 'fence')
  end
  fence = math.max(tonumber(fence) + 1, now_us)
  redis.call('SET', K.fence, digits(fence + (count or 1) - 1))
  return fence
end
