-- Added to the score of a failing timer, which ranks it above those that do not fail.
local FAILING = 2 ^ 52
