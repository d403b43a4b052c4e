-- What is added to the score of a timer that fails, so that it is above those that do not.
local FAILING = 2 ^ 52
