import type { Job, JobFile } from '../job.ts';
import type { BodyA, BodyB, BodyC } from './bodies.ts';

/** A duration: a text with its unit (`5s`, `20m`, `1h30m`), or a number of milliseconds. */
export type Duration = string | number;

/**
 * The gateway, account and folders of a client. What is left out is read as on the command line: from the environment, then
 * from the profile of the config file, then the default.
 */
export interface ClientOptions {
  /** The address of the gateway, without /v1. */
  baseUrl?: string | undefined;
  apiKey?: string | undefined;
  /** The folder of the ledger. A program and a command line with the same folder share jobs, keys and budgets. */
  stateDir?: string | undefined;
  /** Where the config file is. */
  configDir?: string | undefined;
  /** The profile of the config file. */
  profile?: string | undefined;
  /** True uses the built-in sandbox gateway: offline and free. */
  sandbox?: boolean | undefined;
  /** Accepts an http:// address that is not loopback. */
  allowHttp?: boolean | undefined;
  /** Origins that get the key for result addresses, in addition to the gateway's own site. */
  trustedOrigins?: readonly string[] | undefined;
  /** How long a call may take in all, unless it has its own `timeout`; default 30 minutes. */
  timeout?: Duration | undefined;
  /** The shortest pause between two polls of a job; default 5 seconds, less only on loopback. */
  pollInterval?: Duration | undefined;
  /** The limit of one HTTP call. */
  requestTimeout?: Duration | undefined;
  /** How often a refused or unsent request is retried; default 5. */
  retries?: number | undefined;
  /** The standing budget that is spent from. */
  budgetName?: string | undefined;
  /** The environment variables that settings are read from; default those of the process, none for `{}`. */
  env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Called with each line that the command line would write to stderr, secrets removed. */
  onNote?: ((text: string) => void) | undefined;
}

/** The options of every call. */
export interface CallOptions {
  /**
   * Ends the call as a first Ctrl-C ends a command: nothing more is sent, waiting ends, and the response to a paid request is
   * awaited first. The job goes on, and the same call resumes it.
   */
  signal?: AbortSignal | undefined;
  /** Ends the call as a second Ctrl-C does: an outstanding response is given up, which may leave `submit_unknown`. */
  giveUp?: AbortSignal | undefined;
  /** How long the call may take in all. */
  timeout?: Duration | undefined;
}

/** The options of a call that pays. */
export interface PayingOptions extends CallOptions {
  /** Permanently names the job: the same key never pays twice, in any process. */
  key?: string | undefined;
  /** A deliberate second take: pays although the same was submitted before. */
  newTake?: boolean | undefined;
  /** The most that all runs of this submission may cost together, as an exact decimal: `'2.50'`. */
  budget?: string | number | undefined;
}

/** Where a file goes. */
export interface OutputOptions {
  /** Overwrites the output. */
  force?: boolean | undefined;
  /** Writes NAME.json next to each file, with its request, job, price and SHA-256. */
  sidecar?: boolean | undefined;
}

/** The video protocols whose bodies have types. */
export type ProtocolName = 'a' | 'b' | 'c';

/** A video of one protocol. */
export interface VideoOf<Protocol extends ProtocolName, Body> extends PayingOptions, OutputOptions {
  protocol: Protocol;
  /** The body in the protocol's own spelling. */
  body: Body;
  check?: true | undefined;
  /** Protocol C alone: which of its two equivalent paths. */
  endpoint?: 'generations' | 'videos' | undefined;
  /** True waits until the video is ready, and saves nothing. */
  wait?: boolean | undefined;
  /** Waits, and saves the video as this file. */
  output?: string | undefined;
  /** Throws `result_corrupt` if the video differs from the request. It is kept; the same call again pays nothing. */
  strict?: boolean | undefined;
  /** Writes into an MP4 that an algorithm made it. */
  mark?: boolean | undefined;
}

/** A video whose body is not checked before it is sent. */
export interface UncheckedVideo extends Omit<VideoOf<ProtocolName, object>, 'check'> {
  check: false;
}

/** A video whose body is checked before it is sent. */
export type VideoOrder = VideoOf<'a', BodyA> | VideoOf<'b', BodyB> | VideoOf<'c', BodyC>;

/** A text to be spoken as a stream. */
export interface SpeechStreamOrder extends PayingOptions {
  text: string;
  /** The voice; default that of the settings, else the gateway's. */
  speaker?: string | undefined;
  /** `mp3`, `wav`, `pcm`, `ogg_opus` or another format of the gateway; by the extension of the output, else MP3. */
  format?: string | undefined;
  /** Hertz; 24000. */
  sampleRate?: number | undefined;
  /** More fields of the body's `req_params`, in native spelling. */
  params?: object | undefined;
  /** False skips the local checks. */
  check?: boolean | undefined;
}

/** A text to be spoken into a file. */
export interface SpeechOrder extends SpeechStreamOrder, OutputOptions {
  output: string;
}

/** The options of waiting for a job. */
export interface WaitOptions extends CallOptions {
  /** The protocol of a handle that this ledger has never seen: the gateway is asked whether it knows it. */
  protocol?: string | undefined;
}

/** The options of fetching a result. */
export interface FetchOptions extends WaitOptions {
  /** A file, a folder, or a template such as `out/{id}.{ext}`; default the file that the job was asked for. */
  output?: string | undefined;
  /** Overwrites the output. */
  force?: boolean | undefined;
  /** Throws `result_corrupt` if the video differs from the request. It is kept. */
  strict?: boolean | undefined;
  /** Writes into an MP4 that an algorithm made it. */
  mark?: boolean | undefined;
}

/** Which models are listed. */
export interface ModelsOptions extends CallOptions {
  /** Only models of this protocol. */
  protocol?: string | undefined;
}

/** A video that was accepted, and saved if that was asked for. */
export interface Submitted {
  job: Job;
  /** The files that this call saved. */
  files: JobFile[];
  /** True if an earlier run had paid for it, and nothing was submitted. */
  resumed: boolean;
}

/** The result of a job, saved. */
export interface Fetched {
  job: Job;
  files: JobFile[];
}

/** Speech, saved. */
export interface Spoken {
  job: Job;
  file: JobFile;
  /** True if an earlier run had paid for it, and nothing was sent. */
  resumed: boolean;
}
