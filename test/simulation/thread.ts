import { receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import type { Asked, Replied } from './calls.ts';
import { Program } from './program.ts';

// A thread that runs processes, concurrently with other threads. The thread stops at each system call
// until the machine replies.

const { port, turn, bundle } = workerData as {
  port: MessagePort;
  turn: Int32Array<SharedArrayBuffer>;
  bundle: string;
};

function ask(asked: Asked): Replied {
  port.postMessage(asked);
  Atomics.store(turn, 0, 0);
  Atomics.notify(turn, 0);
  while (Atomics.load(turn, 0) === 0) Atomics.wait(turn, 0, 0);
  return receiveMessageOnPort(port)?.message as Replied;
}

const program = new Program(bundle);
program.answer = ask;
let requests: Asked = { begun: [], ended: [] };
for (;;) requests = await program.resume(ask(requests));
