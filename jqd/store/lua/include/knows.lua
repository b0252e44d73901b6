-- Whether all living daemons know of jobs that are loose (heads.lua): one that does not neither starts them nor finds them when they are cancelled. Needs members.
--
--     life   "knows": flat, sysid and epoch of those that do; "loose": 1 while these are all, and jobs may come loose
--
-- Gives note_knows(sysid, epoch): this one does. Cost: O(members).
local function note_knows(sysid, epoch)
  local words, is_known, all = {}, {}, true
  local own_mark, text = sysid .. ' ' .. digits(epoch), redis.call('HGET', K.life, 'knows') or ''
  for one, its in text:gmatch('(%S+) (%d+)') do
    is_known[one .. ' ' .. its] = true
  end
  is_known[own_mark] = true
  local rows = redis.call('HGETALL', K.members)
  for at = 1, #rows, 2 do
    local _, its = member_of(rows[at + 1])
    local mark = rows[at] .. ' ' .. digits(its)
    if its ~= 0 and is_known[mark] then
      words[#words + 1] = mark
    elseif its ~= 0 then
      all = false
    end
  end
  table.sort(words)
  local now = table.concat(words, ' ')
  if now ~= text then
    redis.call('HSET', K.life, 'knows', now)
  end
  if all ~= (redis.call('HGET', K.life, 'loose') == '1') then
    if all then
      redis.call('HSET', K.life, 'loose', '1')
    else
      redis.call('HDEL', K.life, 'loose')
    end
  end
end
