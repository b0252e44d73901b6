-- Daemons that came through recovery and still have ordinary jobs to apply again. Claims do not wait for these, but
-- until they are applied a missing job may come, and a group may have unknown members.
--
-- Field `behind` of `life`: "sysid epoch sysid epoch …". A daemon that left or died stays noted, and is behind again
-- when it joins; a member counts only under the noted epoch.
local NOTED_MAX = 100

function starts.behind() return redis.call('HGET', K.life, 'behind') end

-- Returns the sysids of members that are behind.
function Behind.members()
  local found = {}
  for sysid, epoch in (call.behind or ''):gmatch('(%S+) (%d+)') do
    local _, present = Members.member(sysid)
    if present and present ~= 0 and present == tonumber(epoch) then
      found[#found + 1] = sysid
    end
  end
  return found
end

function starts.is_any_behind() return #Behind.members() > 0 end

-- Returns whether any member is behind.
function Behind.is_any() return call.is_any_behind end

-- Returns whether that daemon is noted, under any epoch.
function Behind.is_noted(sysid)
  return (' ' .. (call.behind or '')):find(' ' .. sysid .. ' ', 1, true) ~= nil
end

local function write(rows)
  call.behind = #rows > 0 and table.concat(rows, ' ', math.max(1, #rows - NOTED_MAX + 1)) or false
  if call.behind then
    redis.call('HSET', K.life, 'behind', call.behind)
  else
    redis.call('HDEL', K.life, 'behind')
  end
end

local function others(sysid)
  local rows = {}
  for other, epoch in (call.behind or ''):gmatch('(%S+) (%d+)') do
    if other ~= sysid then
      rows[#rows + 1] = other .. ' ' .. epoch
    end
  end
  return rows
end

-- Notes that a daemon has jobs to apply again.
function Behind.note(sysid, epoch)
  local row = sysid .. ' ' .. digits(epoch)
  if not (' ' .. (call.behind or '') .. ' '):find(' ' .. row .. ' ', 1, true) then
    local rows = others(sysid)
    rows[#rows + 1] = row
    write(rows)
  end
end

-- Notes that a daemon has applied all.
function Behind.drop(sysid)
  if Behind.is_noted(sysid) then
    write(others(sysid))
  end
end
