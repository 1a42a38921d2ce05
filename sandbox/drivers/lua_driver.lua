-- The Lua driver of function mode: `lua5.4 lua_driver.lua ENTRY` loads program.lua beside it and answers requests.
-- Frames and encoding are those of python_driver.py. It knows no expected result.
--
-- Lua has one kind of table: one whose keys are 1..n, the empty one included, is sent as a list, any other as a dict.
-- A string is sent as str where it is UTF-8, otherwise as bytes. A list holding None can't be received.

local DEPTH = 50
local requests, replies, errors = io.stdin, io.stdout, io.stderr
local format, pack, unpack, concat, tointeger = string.format, string.pack, string.unpack, table.concat, math.tointeger
local type, next, rawlen, rawget, pcall, error, tostring = type, next, rawlen, rawget, pcall, error, tostring
local isutf8, mathtype, unpack_table = utf8.len, math.type, table.unpack

local function integer(value)
    return value < 0 and format("i-%x;", -value) or format("i%x;", value)
end

local encode

local function encode_table(value, depth)
    if depth >= DEPTH then error("nesting deeper than " .. DEPTH, 0) end
    local count = 0
    for _ in next, value do count = count + 1 end
    local parts, length = {}, rawlen(value)
    if length == count then
        for index = 1, length do parts[index] = encode(rawget(value, index), depth + 1) end
        return format("l%d;", length) .. concat(parts)
    end
    for key, item in next, value do
        parts[#parts + 1] = encode(key, depth + 1) .. encode(item, depth + 1)
    end
    return format("m%d;", count) .. concat(parts)
end

function encode(value, depth)
    local kind = type(value)
    if value == nil then return "n" end
    if kind == "boolean" then return value and "t" or "f" end
    if kind == "number" then
        if mathtype(value) == "integer" then return integer(value) end
        return "d" .. (pack(">d", value):gsub(".", function(byte) return format("%02x", byte:byte()) end))
    end
    if kind == "string" then
        return format("%s%d:", isutf8(value) and "s" or "b", #value) .. value
    end
    if kind == "table" then return encode_table(value, depth) end
    error(kind, 0)
end

local function decode(data, at)
    local tag = data:sub(at, at)
    at = at + 1
    if tag == "n" then return nil, at end
    if tag == "t" or tag == "f" then return tag == "t", at end
    if tag == "d" then
        local bytes = data:sub(at, at + 15):gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end)
        return (unpack(">d", bytes)), at + 16
    end
    if tag == "i" then
        local stop = data:find(";", at, true)
        local digits = data:sub(at, stop - 1)
        if #digits:gsub("-", "") > 16 then error("an int of more than 64 bits", 0) end
        return tointeger(tonumber(digits, 16)), stop + 1
    end
    local stop = data:find("[:;]", at)
    local count = tonumber(data:sub(at, stop - 1))
    at = stop + 1
    if tag == "s" or tag == "b" then return data:sub(at, at + count - 1), at + count end
    local result = {}
    for index = 1, count do
        local key, item
        key, at = decode(data, at)
        if tag == "m" then
            item, at = decode(data, at)
            if key ~= nil then result[key] = item end
        elseif tag == "e" or tag == "z" then
            result[key] = true
        else
            if key == nil then error("a list holding None", 0) end
            result[index] = key
        end
    end
    return result, at
end

-- u2;lCOUNT;…: the arguments, which may themselves be nil; keyword arguments don't exist here
local function decode_arguments(data)
    local count, at = data:match("^u2;l(%d+);()")
    local result = {}
    for index = 1, tonumber(count) do result[index], at = decode(data, at) end
    return result, tonumber(count)
end

local function load_program()
    local directory = arg[0]:match("^(.*)/") or "."
    local chunk, problem = loadfile(directory .. "/program.lua", "t")
    if not chunk then error(problem, 0) end
    local returned = chunk()
    local found = type(returned) == "table" and returned[arg[1]] or _G[arg[1]]
    if type(found) ~= "function" then error("no function " .. arg[1], 0) end
    return found
end

-- whatever the program prints is no answer, and what it reads is no question
io.stdout, io.stdin = errors, io.open("/dev/null", "r")
io.output(errors)
io.input(io.stdin)
function print(...)
    local parts = { ... }
    for index = 1, select("#", ...) do parts[index] = tostring(parts[index]) end
    errors:write(concat(parts, "\t"), "\n")
end

local entry
for line in requests:lines("l") do
    local identity, length = line:match("^(%d+) (%d+)$")
    local data = requests:read(tonumber(length)) or ""
    local kind, body = "r", nil
    local fine, result = pcall(function()
        if not entry then
            entry = load_program()
            return nil
        end
        local arguments, count = decode_arguments(data)
        return (entry(unpack_table(arguments, 1, count)))
    end)
    if fine then
        fine, body = pcall(encode, result, 0)
        if not fine then kind, body = "u", tostring(body):sub(1, 100) end
    else
        kind, body = "e", "error"
    end
    replies:write(identity, " ", kind, " ", format("%d", #body), "\n", body)
    replies:flush()
end
