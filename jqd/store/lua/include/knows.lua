-- Whether all living daemons know of jobs that are loose (heads.lua): one that does not neither starts them nor finds them when it ends, changes or takes
-- them: rows of such jobs stay. So what was loose beside such a daemon is in doubt until it was claimed (choose.lua). Needs members, heads.
--
--     life   "knows": flat, sysid and epoch of those that do; "loose": the latest epoch of a seat while these are all, and jobs may come loose:
--            whoever has a later one sat down since; "doubt:<jobtype>": rows of that jobtype may be wrong
--
-- Gives note_knows(sysid, epoch, comes): this one does, and sits down now. Cost: O(members), and of jobtypes when they come into doubt.
local note_knows
do
  local function doubt_all()
    local words = {}
    for _, jobtype in ipairs(redis.call('HKEYS', K.keyed)) do
      if jobtype ~= '' then
        words[#words + 1], words[#words + 2] = 'doubt:' .. jobtype, '1'
      end
    end
    keyed.call(words, 'HSET', K.life)
  end

  function note_knows(sysid, epoch, comes)
    local words, is_known, all, latest, others = {}, {}, true, 0, false
    local own_mark, text = sysid .. ' ' .. digits(epoch), redis.call('HGET', K.life, 'knows') or ''
    for one, its in text:gmatch('(%S+) (%d+)') do
      is_known[one .. ' ' .. its] = true
    end
    is_known[own_mark] = true
    local rows = redis.call('HGETALL', K.members)
    for at = 1, #rows, 2 do
      local _, its = member_of(rows[at + 1])
      local mark = rows[at] .. ' ' .. digits(its)
      latest = math.max(latest, its)
      if its ~= 0 and is_known[mark] then
        words[#words + 1] = mark
        others = others or rows[at] ~= sysid
      elseif its ~= 0 then
        all = false
      end
    end
    table.sort(words)
    local now = table.concat(words, ' ')
    if now ~= text then
      redis.call('HSET', K.life, 'knows', now)
    end
    local was = redis.call('HGET', K.life, 'loose')
    if was and not all or comes and not others then  -- who had a seat while nobody looked is not known
      doubt_all()
    end
    if not all then
      redis.call('HDEL', K.life, 'loose')
    elseif was ~= digits(latest) then
      redis.call('HSET', K.life, 'loose', digits(latest))
    end
  end
end
