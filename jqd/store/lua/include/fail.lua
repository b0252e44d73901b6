-- Failing by name; `scripts.py` maps the name to an exception. Needs nothing.
-- Gives fail(name, detail), number(text, what): a number or JQD_ARGUMENT.
local function fail(name, detail)
  error({err = name .. ' ' .. detail})
end

local function number(text, what)
  return tonumber(text) or fail('JQD_ARGUMENT', what)
end
