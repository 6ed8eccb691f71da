import { receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import type { ProcessRequest, Replied } from './calls.ts';
import { Program } from './program.ts';

// A thread that runs processes, concurrently with other threads. The thread stops at each system call
// until the machine replies.

const { port, turn, bundle } = workerData as {
  port: MessagePort;
  turn: Int32Array<SharedArrayBuffer>;
  bundle: string;
};

function ask(request: ProcessRequest): Replied {
  port.postMessage(request);
  Atomics.store(turn, 0, 0);
  Atomics.notify(turn, 0);
  while (Atomics.load(turn, 0) === 0) Atomics.wait(turn, 0, 0);
  return receiveMessageOnPort(port)?.message as Replied;
}

const program = new Program(bundle);
program.answer = ask;
let request: ProcessRequest = { started: [], ended: [] };
for (;;) request = await program.resume(ask(request));
