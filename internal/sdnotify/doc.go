// Package sdnotify reports the state of the process to systemd over the datagram socket that
// NOTIFY_SOCKET names (sd_notify(3)). It sends READY=1 once, WATCHDOG=1 while the process is alive,
// and STOPPING=1 at its end. The caller decides what ready and alive mean. Without the variable,
// nothing is sent. A message that cannot be sent is logged and never stops the process.
package sdnotify
