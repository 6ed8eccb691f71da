import type { Job, JobFile } from '../job.ts';
import type { BodyA, BodyB, BodyC } from './bodies.ts';

/** A duration: a string with its unit (`5s`, `20m`, `1h30m`), or a number of milliseconds. */
export type Duration = string | number;

/**
 * The gateway, account and folders of a client. Omitted options are resolved as on the command line: from the
 * environment, then from the profile of the config file, then the default.
 */
export interface ClientOptions {
  /** The address of the gateway, without /v1. */
  baseUrl?: string | undefined;
  apiKey?: string | undefined;
  /** The folder of the ledger. Programs and command lines with the same folder share jobs, keys and budgets. */
  stateDir?: string | undefined;
  /** The folder of the config file. */
  configDir?: string | undefined;
  /** The profile of the config file. */
  profile?: string | undefined;
  /** If true, uses the built-in sandbox gateway: offline and free. */
  sandbox?: boolean | undefined;
  /** If true, accepts an http:// address that is not loopback. */
  allowHttp?: boolean | undefined;
  /** Origins whose result addresses are requested with the key, in addition to the gateway's own site. */
  trustedOrigins?: readonly string[] | undefined;
  /** The maximum duration of a call without its own `timeout`; default 30 minutes. */
  timeout?: Duration | undefined;
  /** The minimum pause between two polls of a job; default 5 seconds, less only on loopback. */
  pollInterval?: Duration | undefined;
  /** The time limit of one HTTP call. */
  requestTimeout?: Duration | undefined;
  /** The maximum number of retries of a refused or unsent request; default 5. */
  retries?: number | undefined;
  /** The standing budget to spend from. */
  budgetName?: string | undefined;
  /** The environment variables from which settings are read (default: those of the process). `{}` means none. */
  env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Called with each line that the command line would write to stderr, without secrets. */
  onNote?: ((text: string) => void) | undefined;
}

/** The options of every call. */
export interface CallOptions {
  /**
   * Ends the call as a first Ctrl-C ends a command: it sends nothing more and stops waiting, except for the response to
   * a paid request. The job continues, and repeating the call resumes it.
   */
  signal?: AbortSignal | undefined;
  /** Ends the call as a second Ctrl-C does: it abandons an outstanding response, which may cause `submit_unknown`. */
  giveUp?: AbortSignal | undefined;
  /** The maximum duration of the call. */
  timeout?: Duration | undefined;
}

/** The options of a call that pays. */
export interface PayingOptions extends CallOptions {
  /** Permanently names the job: the same key never pays twice, in any process. */
  key?: string | undefined;
  /** If true, makes a deliberate second take, and pays even if the same request was submitted before. */
  newTake?: boolean | undefined;
  /** The maximum total cost of all runs of this submission, as an exact decimal: `'2.50'`. */
  budget?: string | number | undefined;
}

/** The options of an output file. */
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
  /** The body, with the protocol's own field names. */
  body: Body;
  check?: true | undefined;
  /** Protocol C only: one of its two equivalent paths. */
  endpoint?: 'generations' | 'videos' | undefined;
  /** If true, waits until the video is ready, and saves nothing. */
  wait?: boolean | undefined;
  /** Waits, and saves the video to this file, or as this object: `s3://BUCKET/clips/{id}.mp4`. */
  output?: string | undefined;
  /**
   * Throws `result_corrupt` if the video differs from the request. The file is kept, and repeating the call is free.
   */
  strict?: boolean | undefined;
  /** Labels an MP4 as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean | undefined;
}

/** A video whose body is not checked before it is sent. */
export interface UncheckedVideo extends Omit<VideoOf<ProtocolName, object>, 'check'> {
  check: false;
}

/** A video whose body is checked before it is sent. */
export type VideoOrder = VideoOf<'a', BodyA> | VideoOf<'b', BodyB> | VideoOf<'c', BodyC>;

/** Text to speak as a stream. */
export interface SpeechStreamOrder extends PayingOptions {
  text: string;
  /** The voice. Defaults to the setting, then to the gateway's default. */
  speaker?: string | undefined;
  /**
   * `mp3`, `wav`, `pcm`, `ogg_opus` or another format of the gateway. Defaults to the extension of the output, then to
   * MP3.
   */
  format?: string | undefined;
  /** The sample rate in hertz; default 24000. */
  sampleRate?: number | undefined;
  /** More fields of the body's `req_params`, by the protocol's own names. */
  params?: object | undefined;
  /** If false, skips the local checks. */
  check?: boolean | undefined;
}

/** Text to speak into a file. */
export interface SpeechOrder extends SpeechStreamOrder, OutputOptions {
  /** A file, or an object: `s3://BUCKET/{id}.mp3`. */
  output: string;
  /** Labels an MP3 as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean | undefined;
}

/** The options of waiting for a job. */
export interface WaitOptions extends CallOptions {
  /** The protocol of a handle that is not in this ledger. The gateway must confirm the handle. */
  protocol?: string | undefined;
}

/** The options of fetching a result. */
export interface FetchOptions extends WaitOptions {
  /** A file, a folder, or a template such as `out/{id}.{ext}` (default: the output of the job's own command). */
  output?: string | undefined;
  /** Overwrites the output. */
  force?: boolean | undefined;
  /** Throws `result_corrupt` if the video differs from the request. The file is kept. */
  strict?: boolean | undefined;
  /** Labels an MP4 or MP3 as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean | undefined;
}

/** The filter of a model list. */
export interface ModelsOptions extends CallOptions {
  /** Only models of this protocol. */
  protocol?: string | undefined;
}

/** A video that was accepted, and saved if the order has an `output`. */
export interface Submitted {
  job: Job;
  /** The files that this call saved. */
  files: JobFile[];
  /** True if an earlier run had paid for the video, and nothing was submitted. */
  resumed: boolean;
}

/** The saved result of a job. */
export interface Fetched {
  job: Job;
  files: JobFile[];
}

/** Saved speech. */
export interface Spoken {
  job: Job;
  file: JobFile;
  /** True if an earlier run had paid for the speech, and nothing was sent. */
  resumed: boolean;
}
