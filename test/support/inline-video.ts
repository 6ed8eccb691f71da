import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';

/** A finished operation whose response contains a video of any size. The video is generated while it is sent. */
export interface InlineVideo {
  /** The video's hash. */
  sha256: string;
  bytes: number;
  send(response: ServerResponse, name: string): Promise<void>;
}

const pieceBytes = 48 * 1024;

/**
 * Returns an MP4 of at least `bytes` bytes. Its last box has size 0, so it extends to the end of the file, and contains
 * noise.
 */
export function inlineVideo(bytes: number): InlineVideo {
  const head = Buffer.from(
    '00000018667479706d703432000000006d70343269736f6d000000086d6f6f760000000866726565000000006d646174',
    'hex',
  );
  let seed = 1;
  const noise = Buffer.from(
    Array.from({ length: pieceBytes }, () => (seed = (seed * 48271) % 2147483647) & 255),
  );
  const pieces = Math.ceil(bytes / pieceBytes);
  const hash = createHash('sha256').update(head);
  for (let sent = 0; sent < pieces; sent += 1) hash.update(noise);
  // Both lengths are multiples of three, so the Base64 texts can be concatenated.
  const [first, piece] = [head.toString('base64'), Buffer.from(noise.toString('base64'), 'latin1')];
  return {
    sha256: hash.digest('hex'),
    bytes: head.length + pieces * pieceBytes,
    async send(response, name) {
      const closed = once(response, 'close');
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write(
        `{"name":"${name}","done":true,"response":{"generateVideoResponse":{"generatedSamples":[{"video":{"encodedVideo":"${first}`,
      );
      for (let sent = 0; sent < pieces; sent += 1)
        if (!response.write(piece)) await Promise.race([once(response, 'drain'), closed]);
      response.end('","encoding":"video/mp4"}}]}}}');
    },
  };
}

/** Returns a process's peak resident memory, in MiB, or NaN if the system does not report it. */
export async function peakMib(child: Pick<ChildProcess, 'pid' | 'exitCode' | 'signalCode'>): Promise<number> {
  let peak = Number.NaN;
  while (child.exitCode === null && child.signalCode === null) {
    peak = vmHwm(child.pid) ?? peak;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return peak;
}

function vmHwm(pid: number | undefined): number | undefined {
  try {
    const kib = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid ?? ''}/status`, 'utf8'))?.[1];
    return kib === undefined ? undefined : Number(kib) / 1024;
  } catch {
    return undefined;
  }
}
