import type { Job, JobFile } from '../job.ts';
import type { BodyA, BodyB, BodyC } from './bodies.ts';

/** A duration: a string with its unit (`5s`, `20m`, `1h30m`), or a number of milliseconds. */
export type Duration = string | number;

/**
 * The gateway, account and folders of a client. Omitted options are resolved as on the command line: from the
 * environment, then the config file's profile, then the default.
 */
export interface ClientOptions {
  /** The gateway's address, without /v1. */
  baseUrl?: string | undefined;
  apiKey?: string | undefined;
  /** The ledger's folder. Programs and command lines with the same folder share jobs, keys and budgets. */
  stateDir?: string | undefined;
  /** The config file's folder. */
  configDir?: string | undefined;
  /** The profile in the config file. */
  profile?: string | undefined;
  /** If true, uses the built-in sandbox gateway, which is offline and free. */
  sandbox?: boolean | undefined;
  /** If true, accepts an http:// address even if it is not a loopback address. */
  allowHttp?: boolean | undefined;
  /** Origins that may receive the key in requests for results, in addition to the gateway's own site. */
  trustedOrigins?: readonly string[] | undefined;
  /** The maximum duration of a call without its own `timeout`. Default: 30 minutes. */
  timeout?: Duration | undefined;
  /**
   * The minimum pause between two polls of a job. Default: 5 seconds. Only a loopback gateway may be polled more often.
   */
  pollInterval?: Duration | undefined;
  /** The time limit for a single HTTP call. */
  requestTimeout?: Duration | undefined;
  /** The maximum number of retries of a refused or unsent request. Default: 5. */
  retries?: number | undefined;
  /** The standing budget to spend from. */
  budgetName?: string | undefined;
  /**
   * The environment variables from which settings are read. `{}` means no variables. Default: the process's
   * environment.
   */
  env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Called with each line that the command line would write to stderr, without secrets. */
  onNote?: ((text: string) => void) | undefined;
}

/** Options of every call. */
export interface CallOptions {
  /**
   * Ends the call as a first Ctrl-C ends a command. The call sends nothing more and stops waiting, except for the
   * response to a paid request. The job continues, and repeating the call resumes it.
   */
  signal?: AbortSignal | undefined;
  /**
   * Ends the call as a second Ctrl-C does. The call abandons an outstanding response, which may cause `submit_unknown`.
   */
  giveUp?: AbortSignal | undefined;
  /** The maximum duration of the call. */
  timeout?: Duration | undefined;
}

/** Options of a call that pays. */
interface PayingOptions extends CallOptions {
  /** Permanently names the job: the same key never pays twice, in any process. */
  key?: string | undefined;
  /** If true, makes a deliberate second take, and pays for it even if the same request was submitted before. */
  newTake?: boolean | undefined;
  /** The maximum total cost of all runs of this submission, as an exact decimal such as `'2.50'`. */
  budget?: string | number | undefined;
}

/** Options for an output file. */
interface OutputOptions {
  /** If true, overwrites the output. */
  force?: boolean | undefined;
  /** If true, writes NAME.json next to each file, with the file's request, job, price and SHA-256. */
  sidecar?: boolean | undefined;
}

/** The video protocols with typed request bodies. */
export type ProtocolName = 'a' | 'b' | 'c';

/** An order for a video with one protocol. */
interface VideoOf<Protocol extends ProtocolName, Body> extends PayingOptions, OutputOptions {
  protocol: Protocol;
  /** The request body, with the protocol's own field names. */
  body: Body;
  check?: true | undefined;
  /** Protocol C only: which of its two equivalent paths to use. */
  endpoint?: 'generations' | 'videos' | undefined;
  /** If true, waits until the video is ready, but saves nothing. */
  wait?: boolean | undefined;
  /** Waits, and saves the video to this file, folder or object, such as `s3://BUCKET/clips/{id}.mp4`. */
  output?: string | undefined;
  /**
   * If true, throws `result_corrupt` if the video differs from the request. The file is
   * kept, and repeating the call is free.
   */
  strict?: boolean | undefined;
  /** If true, labels an MP4 as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean | undefined;
}

/** An order for a video whose request body is not checked before it is sent. */
export interface UncheckedVideo extends Omit<VideoOf<ProtocolName, object>, 'check'> {
  check: false;
}

/** An order for a video whose request body is checked before it is sent. */
export type VideoOrder = VideoOf<'a', BodyA> | VideoOf<'b', BodyB> | VideoOf<'c', BodyC>;

/** An order for text to speak as a stream. */
export interface SpeechStreamOrder extends PayingOptions {
  text: string;
  /** The voice. Default: the configured voice, or else the gateway's default. */
  speaker?: string | undefined;
  /**
   * `mp3`, `wav`, `pcm`, `ogg_opus` or another format that the gateway supports. Default:
   * the output's extension, or else MP3.
   */
  format?: string | undefined;
  /** The sample rate in hertz. Default: 24000. */
  sampleRate?: number | undefined;
  /** Additional fields of the body's `req_params`, with the protocol's own names. */
  params?: object | undefined;
  /** If false, skips the local checks. */
  check?: boolean | undefined;
}

/** An order for text to speak into a file. */
export interface SpeechOrder extends SpeechStreamOrder, OutputOptions {
  /** The output: a file, or an object such as `s3://BUCKET/{id}.mp3`. */
  output: string;
  /** If true, labels an MP3 as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean | undefined;
}

/** Options for waiting for a job. */
export interface WaitOptions extends CallOptions {
  /** The protocol of a handle that is not in this ledger. The gateway must confirm the handle. */
  protocol?: string | undefined;
}

/** Options for fetching a result. */
export interface FetchOptions extends WaitOptions {
  /** A file, a folder, or a template such as `out/{id}.{ext}`. Default: the output of the job's own command. */
  output?: string | undefined;
  /** If true, overwrites the output. */
  force?: boolean | undefined;
  /** If true, throws `result_corrupt` if the video differs from the request. The file is kept. */
  strict?: boolean | undefined;
  /** If true, labels an MP4 or MP3 as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean | undefined;
}

/** Options that filter the model list. */
export interface ModelsOptions extends CallOptions {
  /** If set, returns only models of this protocol. */
  protocol?: string | undefined;
}

/** A video that was accepted, and saved if its order has an `output`. */
export interface Submitted {
  job: Job;
  /** The files that this call saved. */
  files: JobFile[];
  /** True if an earlier run had paid for the video, so nothing was submitted. */
  resumed: boolean;
}

/** A job's saved result. */
export interface Fetched {
  job: Job;
  files: JobFile[];
}

/** Speech that was saved to its output. */
export interface Spoken {
  job: Job;
  file: JobFile;
  /** True if an earlier run had paid for the speech, so nothing was sent. */
  resumed: boolean;
}
