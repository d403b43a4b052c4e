package servertest

// Canary is the password of every test server and user. No test may print it: scripts/test.sh
// searches the output of the whole suite for it.
const Canary = "S3CRET-canary-9Zq"
