# Shows, of what go test -v printed, all that each failed test did, for each package that failed.
#
# What parallel tests print is mixed: "=== NAME  TestX" and the like say whose lines follow. A test
# has at most MOST lines: its first and last ones, for the middle rarely tells why. What its servers
# had to say (servertest.Own logs it below "log:") comes last and is cut to its last LOG lines, or it
# would hide the test's own message.

BEGIN { MOST = 300; LOG = 40; clear() }

function clear() {
	split("", text); split("", lines); split("", failed); split("", names)
	split("", log_text); split("", log_lines); split("", ended); split("", started)
	test = ""; tests = 0; starts = 0; in_log = 0; panics = 0
}

function keep(line) { text[test, ++lines[test]] = line }

# show prints lines from to to of a test, of its own or of its servers'.
function show(of, name, from, to,    i) {
	for (i = from; i <= to; i++) print of == "log" ? log_text[name, i] : text[name, i]
}

function show_test(name,    n) {
	n = lines[name]
	if (n <= MOST) {
		show("own", name, 1, n)
	} else {
		show("own", name, 1, MOST / 3)
		print "    [" n - MOST " lines are left out here]"
		show("own", name, n - MOST * 2 / 3 + 1, n)
	}
	n = log_lines[name]
	if (n > LOG) print "    [the last " LOG " of " n " lines of its servers' logs]"
	show("log", name, n > LOG ? n - LOG + 1 : 1, n)
}

function show_package(line,    i) {
	print ""
	print "=== " line
	for (i = 1; i <= tests; i++) {
		print ""
		show_test(names[i])
	}
	for (i = 1; panics && i <= starts; i++) { # what was under way is not said to have failed
		if (!(started[i] in ended) && lines[started[i]] > 0) {
			print ""
			print "=== did not end: " started[i]
			show_test(started[i])
		}
	}
	print ""
	show_test("") # what belongs to no test: a compiler's errors, a panic, what goleak found
}

/^=== (RUN|NAME|CONT|PAUSE) / {
	in_log = 0
	if (!panics) test = $3
	if ($2 == "RUN") started[++starts] = $3
	next
}
/^ *--- (PASS|SKIP|FAIL|BENCH): / {
	in_log = 0
	ended[$3] = 1
	if ($2 == "FAIL:" && !($3 in failed)) {
		failed[$3] = 1
		names[++tests] = $3
		keep_in = test
		test = $3
		keep($0)
		test = keep_in
	}
	if (!panics && $0 ~ /^---/) test = ""
	next
}
/^(ok|\?) +\t/ { clear(); next }
/^FAIL\t/ { show_package($0); clear(); next }
/^(panic|fatal error|SIG[A-Z]+): / { panics = 1; test = "" } # to the end of the package
/^ +[A-Za-z0-9_.]+\.go:[0-9]+: log:$/ { in_log = 1; next }
in_log && /^        / { log_text[test, ++log_lines[test]] = $0; next }
/^WARNING: DATA RACE$/ { racing = 1; before = test; test = "" } # which may be seen while another test prints
racing && /^==================$/ { keep($0); racing = 0; test = before; next }
{ in_log = 0; keep($0) }

END { if (tests > 0 || panics) show_package("FAIL, and it did not come to an end") }
