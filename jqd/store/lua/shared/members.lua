-- The daemons that use this partition. A row of `members` is "counter:epoch:identity": its heartbeat, which only grows;
-- its epoch, 0 when revoked; the life of the store in which it came through recovery, or nothing.
local DIGITS_MAX = 16  -- microseconds since 1970 have sixteen until 2286, and are exact numbers in Lua

-- Reads a row: counter, epoch, identity.
function Members.member_of(row)
  local counter, epoch, identity = row:match('^(%d+):(%d+):(.*)$')
  if not counter or #counter > DIGITS_MAX or #epoch > DIGITS_MAX then
    fail('JQD_BAD_VALUE', 'members')
  end
  return tonumber(counter), tonumber(epoch), identity
end

-- Reads a daemon's row; nil: it is no member.
function Members.member(sysid)
  local row = redis.call('HGET', K.members, sysid)
  if not row then
    return nil
  end
  return Members.member_of(row)
end

-- Returns whether all members that are not revoked came through recovery in that life.
function Members.all_through(identity)
  for _, row in ipairs(redis.call('HVALS', K.members)) do
    local _, epoch, through = Members.member_of(row)
    if epoch ~= 0 and through ~= identity then
      return false
    end
  end
  return true
end

-- Fails with JQD_STALE_OWNER unless that epoch is the daemon's present one.
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

-- Returns the first of `count` (1) new numbers. They grow with every call, even after the store was emptied.
function Members.next_fence(now_us, count)
  local fence = redis.call('GET', K.fence) or '0'
  if not fence:match('^%d+$') or #fence > DIGITS_MAX then
    fail('JQD_BAD_VALUE', 'fence')
  end
  fence = math.max(tonumber(fence) + 1, now_us)
  redis.call('SET', K.fence, digits(fence + (count or 1) - 1))
  return fence
end
