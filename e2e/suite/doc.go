// Command suite runs the project's test stages side by side and reports on them.
//
// A stage is one level of the tests: the race detector over all packages, packets in guests, fault injection, and so on. Stages
// declare what they need before them and how many processors they keep busy; the suite starts a stage as soon as both allow it.
// Most packet tests wait for timers of the kernel, so several guests run at once and take tests from one queue, the slowest first.
//
//	stages ──> schedule ──> go test, make ...        native, output parsed as it is written
//	                   └──> queue of tests ──> guest guest guest ...   User-mode Linux, QEMU, or network namespaces of this machine
//	        results ──> progress every 20 s ──> table of stages, skips by reason, ten slowest tests
//
// The durations of the last run are kept in the cache and order the queue of the next one. Output of each stage goes to
// bin/logs/STAGE.log.
//
// make test, make test-all, make e2e and make stress are the commands over this program; e2e/README.md lists the levels.
package main
