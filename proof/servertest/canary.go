package servertest

// Canary is the password of every server and user of the tests. What a test prints must not contain
// it: scripts/test.sh looks for it in the output of the whole suite.
const Canary = "S3CRET-canary-9Zq"
