-- Notes how parents of blocked jobs ended. Nothing is noted of jobs that are not here, or wait for none any more.
-- ARGV     1    now_ms
--          then for each note:
--               * child
--               * parent, or nothing
--               * how it ended, or nothing
--               * how many parents the child has, when all are noted, or nothing; or "new": void all that was noted of
--               this child, unless its entry of `links` was taken or dropped since
--               * the parent's stage, or nothing: it never began anew; with "new" until when (ms) that entry rests, by
--               take_links
--               * which parents were asked (Flow.mark), or nothing: the parent tells by itself
-- Returns  per child, flat, in the order of their first notes: child, 1 if all its parents have ended, the first that
--          did not succeed or nothing, the mark
-- Errors   none
-- Cost     O(notes)
register('note_parents', {'allow-oom'}, function()
  local FIRST, FIELDS = 2, 6

  local children, known, is_blocked, marks = {}, {}, {}, {}
  for at = FIRST, #ARGV, FIELDS do
    local child = ARGV[at]
    if not known[child] then
      known[child], children[#children + 1] = true, child
      is_blocked[child] = tonumber(redis.call('ZSCORE', K.later, child) or '0') >= Counts.BLOCKED_MS
      marks[child] = redis.call('HGET', K.parents .. child, '=')
    end
  end
  for at = FIRST, #ARGV, FIELDS do
    local child, parent, size, mark = ARGV[at], ARGV[at + 1], ARGV[at + 3], ARGV[at + 5]
    -- it waits no more, or for others by now
    if not is_blocked[child] or size ~= 'new' and mark ~= '' and mark ~= marks[child] then
      parent = ''
    elseif size == 'new' then
      -- An older question may be answered after a newer one, and nobody would ask again.
      if ARGV[at + 4] == '' or redis.call('ZSCORE', K.links, 'w' .. child) == ARGV[at + 4] then
        redis.call('UNLINK', K.parents .. child)
        redis.call('ZADD', K.linked, 0, child)
        marks[child] = mark ~= '' and mark
        if marks[child] then
          redis.call('HSET', K.parents .. child, '=', mark)
        end
      end
    elseif size ~= '' then
      redis.call('HSET', K.parents .. child, '@', size)
    end
    if parent ~= '' then
      local how = ARGV[at + 2]
      local stage = tonumber(ARGV[at + 4]) or how == 'gone' and Links.STAGE_GONE or Links.stage_of(0, how ~= '')
      Links.note_parent(child, parent, how, stage, marks[child] and mark == '')
    end
  end
  local answer = {}
  for _, child in ipairs(children) do
    local done, failed, mark = Links.has_parents_ended(child)
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3], answer[#answer + 4] = child, done, failed, mark
  end
  return answer
end)
