// Generated from the schemas of src/protocols by test/library/bodies.test.ts.

/** The body of Protocol A; `model` goes into the path (specification 2.1, 4.1). */
export type BodyA = {
  /** Model name, exactly as listed by mgw models --protocol a. */
  model: string;
  instances: {
    /** Description of the video: content, motion, camera, style, sound. */
    prompt: string;
    /** First frame, if the model accepts one. */
    image?: {
      bytesBase64Encoded: string;
      mimeType: string;
    };
  }[];
  parameters?: {
    /** Number of videos; each is charged. */
    sampleCount?: number;
    /** Length, in whole seconds. */
    durationSeconds?: number;
    /** Width to height, such as 16:9 or 9:16. */
    aspectRatio?: string;
    /** Size, such as 720p or 1080p. */
    resolution?: string;
    /** What must not appear in the video. */
    negativePrompt?: string;
    /** The model's policy on showing people. */
    personGeneration?: string;
    /** Random seed, a whole number. */
    seed?: number;
    /** Let the model rewrite the prompt. */
    enhancePrompt?: boolean;
    /** Generate sound, if the model supports it. */
    generateAudio?: boolean;
  };
};

/** The body of Protocol B (specification 2.3). */
export type BodyB = {
  /** Model name, exactly as listed by mgw models --protocol b. */
  ModelName: string;
  /** Version of the model; optional if the model list contains only one. */
  ModelVersion?: string;
  /** What the video shows; required without FileInfos. */
  Prompt?: string;
  /** What must not appear in the video, if the model supports negative prompts. */
  NegativePrompt?: string;
  FileInfos?: {
    Type?: string;
    Url: string;
    Category?: string;
    Usage?: string;
  }[];
  OutputConfig?: {
    /** Storage mode; the only value is Temporary. */
    StorageMode?: 'Temporary';
    /** Size, such as 720P; case-sensitive. */
    Resolution?: string;
    /** Length, in whole seconds. */
    Duration?: number;
    /** Width to height, such as 16:9. */
    AspectRatio?: string;
    /** Generate sound, if the model supports it. */
    AudioGeneration?: 'Enabled' | 'Disabled';
  };
  /** The model's extension parameters as JSON text. */
  ExtInfo?: unknown;
  /** Ask an extension model to report its usage (ExtInfo, serialized twice). */
  ReturnUsage?: boolean;
};

/** The body of Protocol C, of the official model or of a self-hosted one (specification 2.5). */
export type BodyC = {
  /** Length in seconds: 4 to 15 for vendor-h3 (default 5), 5 to 15 for the self-hosted models. */
  duration?: number;
  /** Same as duration. */
  seconds?: number | string;
  /** t2v, i2v or r2v (default: inferred from the assets). */
  generation_mode?: 't2v' | 'i2v' | 'r2v';
  /** Same as generation_mode. */
  mode?: 't2va' | 'i2va' | 'fl2va' | 'l2va' | 'ref2va';
  /** First frame, or a single reference image. */
  image?: string;
  /** Last frame; combine with image to set both frames. */
  last_frame_image_url?: string;
  /** Same as image. */
  input_reference?: unknown;
  /** Images, at most 9; kept for compatibility. */
  images?: string[];
  /** Reference images, at most 9. */
  reference_image_urls?: string[];
  /** Reference videos, at most 3; only for vendor-h3. */
  reference_video_urls?: string[];
  /** Reference audio files, at most 3. */
  reference_audio_urls?: string[];
  /** Same as reference_audio_urls. */
  audios?: string[];
} & (
  | {
      /** Model, such as vendor-h3-mini (to list them: mgw models --protocol c). */
      model: 'vendor-h3';
      /** What the video shows; at most 30000 characters for the self-hosted models. */
      prompt?: string;
      /** 768P (default) or 2K for vendor-h3, 720p for the self-hosted models. */
      resolution?: '768P' | '2K';
      /** 16:9, 9:16, 1:1, 4:3, 3:4, 21:9, 9:21, 4:5, 5:4 or adaptive. */
      aspect_ratio?: string;
      /** Same as aspect_ratio. */
      ratio?: string;
      /** Let the upstream rewrite the prompt (self-hosted models). */
      prompt_optimization?: never;
    }
  | {
      /** Model, such as vendor-h3-mini (to list them: mgw models --protocol c). */
      model: 'vendor-h3-base' | 'vendor-h3-base-fast' | 'vendor-h3-mini';
      /** What the video shows; at most 30000 characters for the self-hosted models. */
      prompt: string;
      /** 768P (default) or 2K for vendor-h3, 720p for the self-hosted models. */
      resolution?: '720p' | '768P';
      /** 16:9, 9:16, 1:1, 4:3, 3:4, 21:9, 9:21, 4:5, 5:4 or adaptive. */
      aspect_ratio?: '16:9' | '9:16' | '1:1' | '4:3' | '3:4' | '21:9' | '9:21' | '4:5' | '5:4' | 'adaptive';
      /** Same as aspect_ratio. */
      ratio?: '16:9' | '9:16' | '1:1' | '4:3' | '3:4' | '21:9' | '9:21' | '4:5' | '5:4' | 'adaptive';
      /** Let the upstream rewrite the prompt (self-hosted models). */
      prompt_optimization?: boolean;
    }
  | {
      /** Model, such as vendor-h3-mini (to list them: mgw models --protocol c). */
      model: string;
      /** What the video shows; at most 30000 characters for the self-hosted models. */
      prompt?: string;
      /** 768P (default) or 2K for vendor-h3, 720p for the self-hosted models. */
      resolution?: string;
      /** 16:9, 9:16, 1:1, 4:3, 3:4, 21:9, 9:21, 4:5, 5:4 or adaptive. */
      aspect_ratio?: string;
      /** Same as aspect_ratio. */
      ratio?: string;
      /** Let the upstream rewrite the prompt (self-hosted models). */
      prompt_optimization?: boolean;
    }
);
