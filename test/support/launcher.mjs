// Starts processes for a test process, because a large process starts others slowly (see launch.ts). Kills the started
// processes when the test process ends. Otherwise, after a suite is killed, a process that still polls could reach the
// server of a later test on the same port.
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';

const [path] = process.argv.slice(2);
// The processes to start. For each, three connections arrive: its stdin, stdout and stderr.
const orders = [];
const streams = [];
const running = new Set();

function carryOut() {
  while (orders.length > 0 && streams.length >= 3) {
    const { id, command, args, options } = orders.shift();
    const stdio = streams.splice(0, 3);
    const child = spawn(command, args, { ...options, stdio });
    for (const stream of stdio) stream.destroy();
    if (child.pid !== undefined) {
      running.add(child);
      tell({ id, pid: child.pid });
    }
    child.once('error', ({ message }) => tell({ id, error: message }));
    child.once('exit', (code, signal) => {
      running.delete(child);
      tell({ id, code, signal });
    });
  }
}

function tell(said) {
  if (process.connected) process.send(said);
}

process.on('message', (order) => {
  orders.push(order);
  carryOut();
});

process.on('disconnect', () => {
  for (const child of running) child.kill('SIGKILL');
});

// `pauseOnConnect` leaves each connection's data to the process that receives the connection. `unref` lets the launcher
// exit when no process can send orders.
const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (stream) => {
  streams.push(stream);
  carryOut();
});
server.unref().listen(path, () => tell({ isReady: true }));
