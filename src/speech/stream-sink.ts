import { createReadStream } from 'node:fs';
import type { Writable } from 'node:stream';
import { MgwError, messageOf, systemCode } from '../errors.ts';
import { isIntact } from '../files/whole-file.ts';
import type { JobFile } from '../job.ts';
import { ClosedPipe, type AudioSink, type RecoveredAudio } from './sink.ts';
import { wavHeader } from './containers.ts';

/**
 * Speech to a stream such as standard output, each piece as soon as it comes. Nothing is kept.
 *
 * @param wavRate puts a WAV header (of unknown length) before the PCM that comes; hertz
 */
export class StreamSink implements AudioSink {
  readonly #stream: Writable;
  readonly #wavRate: number | undefined;
  #begun = false;

  constructor(stream: Writable, wavRate?: number) {
    this.#stream = stream;
    this.#wavRate = wavRate;
  }

  open(): Promise<void> {
    return Promise.resolve();
  }

  async write(audio: Uint8Array): Promise<void> {
    if (!this.#begun && this.#wavRate !== undefined) await this.#put(wavHeader(this.#wavRate));
    this.#begun = true;
    await this.#put(audio);
  }

  complete(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  publish(kept: JobFile): Promise<JobFile> {
    return Promise.resolve(kept);
  }

  abandon(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  discard(): Promise<void> {
    return Promise.resolve();
  }

  leftOver(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  async recover(candidates: readonly JobFile[]): Promise<RecoveredAudio | undefined> {
    for (const kept of candidates) {
      if (!(await isIntact(kept))) continue;
      for await (const chunk of createReadStream(kept.path)) await this.#put(chunk as Buffer);
      return {};
    }
    return undefined;
  }

  // The next piece waits until this one has left: a slow reader holds the stream back, not the memory.
  #put(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#stream.write(bytes, (error) => {
        if (!error) resolve();
        else reject(gone.has(systemCode(error) ?? '') ? new ClosedPipe() : localFailure(error));
      });
    });
  }
}

const gone = new Set(['EPIPE', 'ECONNRESET', 'ERR_STREAM_DESTROYED']);

function localFailure(error: Error): MgwError {
  const text = `The audio cannot be written to the output: ${messageOf(error)}.`;
  return new MgwError('local_io', text, { charged: 'yes', cause: error });
}
